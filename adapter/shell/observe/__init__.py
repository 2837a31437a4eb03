"""Reads the facts about gangs and workers from the stores; decides and writes nothing."""
