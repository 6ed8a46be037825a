package conformance

var fencingCases []Case
