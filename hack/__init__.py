"""What developers run around Rayspan: the lab and its pinned tools. Nothing here is imported by the product."""
