"""The command line: one small file a command. Whatever is slow to import is imported by the command that needs it."""
