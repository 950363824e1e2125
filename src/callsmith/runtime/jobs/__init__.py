"""Jobs: calls of tools that go on in the background, and whose results come into the conversation when they are there."""
