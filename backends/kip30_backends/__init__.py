"""The stores kip30 comes with, one package each. They share nothing but the driver contract."""
