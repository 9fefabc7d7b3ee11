"""The process group that torch sees: its calls, their arguments, how they run now or later, how it is made."""
