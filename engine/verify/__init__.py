"""Whether a model's vectors are those that they should be: against stored ones, another program's, or its own in float32."""
