"""Who is looked at when, and which process does it?"""
