"""Models answer requests as events: local ones through an engine, with weights from a catalogue."""
