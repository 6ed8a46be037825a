package conformance

var heuristicCases []Case
