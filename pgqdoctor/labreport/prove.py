"""tmp"""
from pgqdoctor.labreport.race import race_document as prove_document
