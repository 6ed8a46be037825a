package conformance

var timeoutCases []Case
