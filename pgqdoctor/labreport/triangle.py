"""tmp"""
from pgqdoctor.labreport.race import race_document as triangle_document
