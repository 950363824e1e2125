"""From the text that an engine writes to an answer: decided beforehand, filtered, validated, and taken back where it must be."""
