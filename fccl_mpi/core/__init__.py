"""The ground floor: errors, seeds and files. Imports nothing of the project."""
