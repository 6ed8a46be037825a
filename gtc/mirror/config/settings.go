package config

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// settings are the keys that were set, by their names as written.
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
	aliases := list(s["clusters"].value)
	for _, name := range slices.Sorted(maps.Keys(s)) {
		a := s[name]
		p := split(name)
		k, known := lookup(p)
		if !known {
			errs = append(errs, a.errorf("%s", unknown(name, p, aliases)))
			continue
		}
		if problem := k.check(a.value); problem != "" {
			errs = append(errs, a.errorf("%s", problem))
			continue
		}
		if problem := p.check(aliases); problem != "" {
			errs = append(errs, a.errorf("%s", problem))
		}
	}
	return s, errs
}

func unknown(name string, p place, aliases []string) string {
	if reason, ok := foreignReason(p.name); ok {
		return reason
	}
	if n := nearest(name, aliases); n != "" {
		return "unknown key; did you mean " + n + "?"
	}
	return "unknown key; --help-config lists those there are"
}

var aliasPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check gives what is wrong with what stands before a key.
func (p place) check(aliases []string) string {
	named := []string{p.of}
	switch {
	case p.of == "":
		return ""
	case p.scope == PerFlow:
		source, target, _ := strings.Cut(p.of, "->")
		named = []string{source, target}
		if source == target {
			return "a cluster is not mirrored to itself"
		}
	}
	for _, alias := range named {
		if !slices.Contains(aliases, alias) {
			return fmt.Sprintf("%q is not in clusters=%s", alias, strings.Join(aliases, ","))
		}
	}
	return ""
}

// check gives what is wrong with a value, without repeating a secret.
func (k Key) check(value string) string {
	switch k.Type {
	case Boolean:
		if value != "true" && value != "false" {
			return fmt.Sprintf("%q is neither true nor false", value)
		}
	case Int:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Sprintf("%q is not a whole number; allowed is %s", value, k.allowed())
		}
		if n < k.Min || n > k.Max {
			return fmt.Sprintf("%s is out of range; allowed is %s", value, k.allowed())
		}
	case String:
		if len(k.Values) > 0 && !slices.Contains(k.Values, value) {
			return fmt.Sprintf("%q is not one of %s", value, k.allowed())
		}
	case List:
		if slices.Contains(list(value), "") {
			return fmt.Sprintf("%q has an empty entry", value)
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
	case k.Type == Int:
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
		if k.Default != "" {
			notes = append(notes, "default "+k.Default)
		}
		if allowed := k.allowed(); allowed != "" {
			notes = append(notes, "allowed "+allowed)
		}
		before := string(k.Scope)
		if k.Scope == PerFlow {
			before = "[" + before + "]"
		}
		if _, err := fmt.Fprintf(w, "%s%s (%s)\n    %s\n", before, k.Name, strings.Join(notes, "; "), k.Doc); err != nil {
			return err
		}
	}
	return nil
}
