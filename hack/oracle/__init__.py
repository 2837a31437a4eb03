"""Compares our quota arithmetic with Kueue's: random trees and loads, put to a real Kueue."""
