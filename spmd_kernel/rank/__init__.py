"""Code that runs inside a rank.  Executed there by path; imports nothing of this package."""
