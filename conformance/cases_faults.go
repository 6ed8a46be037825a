package conformance

var faultCases []Case
