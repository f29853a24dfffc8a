"""The topic tree, for gateways: leaders keep its lists and look names up in them."""
