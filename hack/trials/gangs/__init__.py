"""Do many gangs at once keep the promises: no cluster beyond its quota at any instant, no deadlock, and little room left idle?"""
