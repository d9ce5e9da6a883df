"""The layer below the portable classes: campaigns, memberships, subscriptions, dispatch."""
