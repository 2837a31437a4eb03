"""How do logs, commands and ports of workers pass from worker clusters to who has a grant in the manager?"""
