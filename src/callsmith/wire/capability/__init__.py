"""The wire of the capability bus: names and versions, envelopes of calls, frames of streams, errors; pure."""
