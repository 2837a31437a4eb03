"""Does our quota arithmetic say what Kueue does? Random trees and loads, put to a real Kueue."""
