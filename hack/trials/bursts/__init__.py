"""What does it cost that a job grows and shrinks while it runs: in time beside one cluster, in requests, and does anything stay behind?"""
