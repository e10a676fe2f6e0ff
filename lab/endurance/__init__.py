"""Worker processes with production settings in long or heavy situations: do they stay, bounded in time and memory?"""
