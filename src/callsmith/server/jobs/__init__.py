"""Jobs of a server: calls that go on in the background, in its store."""
