"""What becomes of the text that an engine writes: decided beforehand, filtered, validated, and taken back where it must be."""
