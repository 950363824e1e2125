"""One declaration for what a request or an answer holds: readers and `/openapi.json` both follow from it."""
