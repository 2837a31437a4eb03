"""What does all of the lab stand on: its definition, its places, its versions, and how commands and progress are told?"""
