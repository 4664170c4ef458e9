"""Carry LLM agent runs on after their worker died. Import from the submodules: this one holds the version alone."""

__version__ = "0.1.0"
