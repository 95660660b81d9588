"""tmp"""
from pgqdoctor.labreport.race import race_document as storm_document
