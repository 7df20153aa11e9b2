"""The processes of one run: how they meet, agree, watch each other and end together."""
