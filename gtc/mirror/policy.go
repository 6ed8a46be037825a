package mirror

import (
	"fmt"
	"regexp"
	"strings"
)

// Policy names a mirrored topic on the target, as MirrorMaker's
// ReplicationPolicy does.
type Policy struct {
	// Identity keeps the name. Otherwise the source's alias and Separator go
	// before it: orders of cluster us is us.orders everywhere else.
	Identity  bool
	Separator string
}

// RemoteTopic is the name on the target of a topic of the source.
func (p Policy) RemoteTopic(source, topic string) string {
	if p.Identity {
		return topic
	}
	return source + p.Separator + topic
}

// upstream takes the first alias off a topic's name.
func (p Policy) upstream(topic string) (alias, rest string, ok bool) {
	if p.Identity {
		return "", "", false
	}
	return strings.Cut(topic, p.Separator)
}

// cycle reports that a topic of the source came from the target, also by way of
// others: B.t and C.B.t do not go to B. What is between two separators counts as
// an alias, whether there is such a cluster or not, as in MirrorMaker: a topic
// of one's own should not begin with another cluster's alias.
func (p Policy) cycle(topic, target string) bool {
	for {
		alias, rest, ok := p.upstream(topic)
		if !ok {
			return false
		}
		if alias == target {
			return true
		}
		topic = rest
	}
}

// Patterns are names and regular expressions, of which one has to match the
// whole name. The zero value matches nothing.
type Patterns struct {
	text string
	re   *regexp.Regexp
}

// CompilePatterns compiles names and regular expressions (RE2, where
// MirrorMaker has Java's: there is no look-around).
func CompilePatterns(patterns ...string) (Patterns, error) {
	if len(patterns) == 0 {
		return Patterns{}, nil
	}
	for _, p := range patterns {
		if _, err := regexp.Compile(p); err != nil {
			return Patterns{}, fmt.Errorf("%q is no regular expression (RE2): %w", p, err)
		}
	}
	text := strings.Join(patterns, "|")
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return Patterns{}, fmt.Errorf("%q: %w", text, err)
	}
	return Patterns{text: text, re: re}, nil
}

func (p Patterns) match(name string) bool { return p.re != nil && p.re.MatchString(name) }

func (p Patterns) String() string { return p.text }

// Filter takes what one pattern includes and none excludes.
type Filter struct{ Include, Exclude Patterns }

// Match reports whether the name is taken.
func (f Filter) Match(name string) bool { return f.Include.match(name) && !f.Exclude.match(name) }

// namedFrom reports whether a topic can have been mirrored from one of the other
// name.
func (p Policy) namedFrom(topic, source string) bool {
	if p.Identity {
		return topic == source
	}
	_, rest, ok := p.upstream(topic)
	return ok && rest == source
}
