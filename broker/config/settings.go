package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// settings are the keys that were set, by name.
type settings map[string]assignment

// settle lays the overrides over the file and checks each value alone.
func settle(file, overrides []assignment) (settings, []*Error) {
	var errs []*Error
	s := make(settings, len(file)+len(overrides))
	for _, a := range file {
		if first, twice := s[a.key]; twice {
			// Java takes the last one in silence; of two lines a person reads
			// the first.
			errs = append(errs, a.errorf("already set on line %d; remove one of the two", first.line))
			continue
		}
		s[a.key] = a
	}
	for _, a := range overrides {
		s[a.key] = a
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		a := s[name]
		k, known := lookup(name)
		if !known {
			errs = append(errs, a.errorf("%s", unknown(name)))
			continue
		}
		if problem := k.check(a.value); problem != "" {
			errs = append(errs, a.errorf("%s", problem))
		}
	}
	return s, errs
}

func unknown(name string) string {
	if n := nearest(name); n != "" {
		return "unknown key; did you mean " + n + "?"
	}
	return "unknown key; --help-config lists those there are"
}

// check gives what is wrong with a value, without repeating a secret.
func (k Key) check(value string) string {
	switch k.Type {
	case Boolean:
		if value != "true" && value != "false" {
			return fmt.Sprintf("%q is neither true nor false", value)
		}
	case Int, Long:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Sprintf("%q is not a whole number; allowed is %s", value, k.allowed())
		}
		if n < k.Min || n > k.Max || len(k.Values) > 0 && !slices.Contains(k.Values, value) {
			return fmt.Sprintf("%s is out of range; allowed is %s", value, k.allowed())
		}
	case String:
		if len(k.Values) > 0 && !slices.Contains(k.Values, value) {
			return fmt.Sprintf("%q is not one of %s", value, k.allowed())
		}
	case List:
		for _, item := range list(value) {
			if item == "" {
				return fmt.Sprintf("%q has an empty entry", value)
			}
			if len(k.Values) > 0 && !slices.Contains(k.Values, item) {
				return fmt.Sprintf("%q is not one of %s", item, k.allowed())
			}
		}
	case Password:
		if value == "" {
			return "is empty"
		}
	}
	return ""
}

// allowed describes the values of a key for a person.
func (k Key) allowed() string {
	switch {
	case len(k.Values) > 0:
		shown := slices.Clone(k.Values)
		for i, v := range shown {
			if v == "" {
				shown[i] = "(nothing)"
			}
		}
		return strings.Join(shown, ", ")
	case k.Type == Int || k.Type == Long:
		return fmt.Sprintf("%d to %d", k.Min, k.Max)
	case k.Type == Boolean:
		return "true, false"
	default:
		return ""
	}
}

// list splits a value at its commas; the empty value is the empty list.
func list(value string) []string {
	if value == "" {
		return nil
	}
	items := strings.Split(value, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// PrintHelp writes the documentation of every key.
func PrintHelp(w io.Writer) error {
	for _, k := range keys {
		notes := []string{string(k.Type)}
		if def := k.Default; def != "" {
			notes = append(notes, "default "+def)
		}
		if k.EmbeddedDefault != "" {
			notes = append(notes, k.EmbeddedDefault+" with the broker role")
		}
		if allowed := k.allowed(); allowed != "" {
			notes = append(notes, "allowed "+allowed)
		}
		if k.Role != AnyRole {
			notes = append(notes, "role "+string(k.Role))
		}
		if _, err := fmt.Fprintf(w, "%s (%s)\n    %s\n", k.Name, strings.Join(notes, "; "), k.Doc); err != nil {
			return err
		}
	}
	return nil
}

// Print writes the effective configuration, one key=value a line and where
// each comes from. Secrets are hidden.
func (c *Config) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range c.effectiveNames() {
		k, _ := lookup(name)
		value, from := k.DefaultFor(c.Roles), "default"
		if a, set := c.settings[name]; set {
			value, from = a.value, a.source
			if a.line > 0 {
				from = fmt.Sprintf("%s:%d", a.source, a.line)
			}
		}
		if k.Secret() && value != "" {
			value = Hidden
		}
		if _, err := fmt.Fprintf(t, "%s=%s\t# %s\n", name, value, from); err != nil {
			return err
		}
	}
	return t.Flush()
}

// effectiveNames are the keys that mean something on this node.
func (c *Config) effectiveNames() []string {
	var names []string
	for _, k := range keys {
		if !k.appliesTo(c.Roles) {
			continue
		}
		switch {
		case strings.Contains(k.Name, Alias):
			for _, cl := range c.Clusters {
				names = append(names, strings.Replace(k.Name, Alias, cl.Alias, 1))
			}
		case strings.Contains(k.Name, ListenerName):
			for _, l := range c.Listeners {
				// One that is not set is shown without the prefix.
				name := strings.Replace(k.Name, ListenerName, strings.ToLower(l.Name), 1)
				if _, set := c.settings[name]; set {
					names = append(names, name)
				}
			}
		default:
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (k Key) appliesTo(r Roles) bool {
	switch k.Role {
	case BrokerRole:
		return r.Broker
	case GTCRole:
		return r.GTC
	case GTCOnly:
		return r.GTC && !r.Broker
	case AnyRole:
		return true
	}
	return true
}
