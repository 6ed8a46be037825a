package properties

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// Hidden stands for a secret wherever one would be shown, as in Kafka.
const Hidden = "[hidden]"

// Secret is a value that no log, print or error may show.
type Secret string

// String hides the value; use string(s) to have it.
func (s Secret) String() string { return Hidden }

// GoString hides the value from %#v too.
func (s Secret) GoString() string { return Hidden }

// MarshalText hides the value from JSON and from the logger.
func (s Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

// Settings are the keys that were set, by name, with the defaults of their
// schema behind them, and what was found wrong with them.
type Settings struct {
	source string
	set    map[string]assignment
	schema Schema
	errs   []error // each an *Error
}

// String keeps the values, secrets among them, out of a careless %v.
func (s *Settings) String() string { return fmt.Sprintf("%d settings of %s", len(s.set), s.source) }

// GoString does the same for %#v.
func (s *Settings) GoString() string { return s.String() }

// Check checks each value alone and refuses what the schema does not know. From
// here on keys that are not set have the schema's defaults.
func (s *Settings) Check(schema Schema) {
	s.schema = schema
	for _, name := range s.Names() {
		a := s.set[name]
		if k, known := schema.Lookup(name); !known {
			s.errs = append(s.errs, a.errorf("%s", schema.unknown(name)))
		} else if problem := k.Check(a.value); problem != "" {
			s.errs = append(s.errs, a.errorf("%s", problem))
		}
	}
}

// Err joins every *Error found so far, so that one start shows all that there is
// to mend; nil when there is none.
func (s *Settings) Err() error { return errors.Join(s.errs...) }

// Refuse notes a problem of a key at the place where it was set, if it was.
func (s *Settings) Refuse(name, format string, args ...any) {
	s.errs = append(s.errs, s.place(name).errorf(format, args...))
}

// place is where a key was set, or the whole when it was not.
func (s *Settings) place(name string) place {
	if a, set := s.set[name]; set {
		return a.place
	}
	return place{source: s.source, key: name}
}

// Names are the keys that were set, sorted.
func (s *Settings) Names() []string { return slices.Sorted(maps.Keys(s.set)) }

// IsSet says whether a key was set, be it to its default.
func (s *Settings) IsSet(name string) bool {
	_, set := s.set[name]
	return set
}

// Value is what a key was set to, or its default.
func (s *Settings) Value(name string) string {
	if a, set := s.set[name]; set {
		return a.value
	}
	if s.schema.Lookup == nil {
		return ""
	}
	k, _ := s.schema.Lookup(name)
	return k.Default
}

// List is a value of type List.
func (s *Settings) List(name string) []string { return Items(s.Value(name)) }

// Bool is a value of type Boolean.
func (s *Settings) Bool(name string) bool { return s.Value(name) == "true" }

// Int64 is a value of type Int or Long that Check has found to be in range.
func (s *Settings) Int64(name string) int64 {
	n, err := strconv.ParseInt(s.Value(name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("properties: the default of %s is not a number", name))
	}
	return n
}

// Int32 is a value whose range lies within 32 bits.
func (s *Settings) Int32(name string) int32 { return int32(s.Int64(name)) }

// Int16 is a value whose range lies within 16 bits.
func (s *Settings) Int16(name string) int16 { return int16(s.Int64(name)) }

// Millis is a value in milliseconds.
func (s *Settings) Millis(name string) time.Duration {
	return time.Duration(s.Int64(name)) * time.Millisecond
}

// Seconds is a value in seconds.
func (s *Settings) Seconds(name string) time.Duration {
	return time.Duration(s.Int64(name)) * time.Second
}

// Servers is a list of host:port with one entry at least.
func (s *Settings) Servers(name string) []string {
	servers := s.List(name)
	if len(servers) == 0 {
		s.Refuse(name, "is missing")
	}
	for _, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if n, badPort := strconv.ParseUint(port, 10, 16); err != nil || host == "" || badPort != nil || n == 0 {
			s.Refuse(name, "%q is not host:port", server)
		}
	}
	return servers
}

// Print writes what is in effect of these keys, one key=value a line and where
// each comes from. Secrets are hidden.
func (s *Settings) Print(w io.Writer, names []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range names {
		value, from := s.Value(name), "default"
		if a, set := s.set[name]; set {
			from = a.String()
		}
		if k, _ := s.schema.Lookup(name); k.Secret() && value != "" {
			value = Hidden
		}
		if _, err := fmt.Fprintf(t, "%s=%s\t# %s\n", name, value, from); err != nil {
			return err
		}
	}
	return t.Flush()
}
