"""The programs that the lab needs, and their builds."""
