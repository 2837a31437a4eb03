"""What do people with Docker try Rayspan on? Three clusters made by kind, with the overlays and the tests of the lab.

The lab is what all tests run on, and there is no Docker where this is developed: what is said to Docker and kind here is checked by
reading alone. It touches no cluster but its own three.
"""
