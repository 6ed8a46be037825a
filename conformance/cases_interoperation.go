package conformance

var interoperationCases []Case
