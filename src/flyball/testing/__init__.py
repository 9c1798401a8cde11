"""The test kit, shipped to users: laws for policies, conformance for stores, a clock to move, a closed-loop simulator.

Nothing in production imports it. Import the part that is needed (`flyball.testing.laws` needs hypothesis, the others
do not), so that one part's needs are not another's.
"""
