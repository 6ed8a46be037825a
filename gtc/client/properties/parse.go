// Package properties reads the configuration of Kafka's programs: a file of Java
// properties with key=value overrides on top of it, checked against a table of
// keys, and out of it the way into a cluster (security.protocol, sasl.*, ssl.*)
// as a Kafka client takes it.
//
// What no table knows is refused, with its line and the nearest name: a mistyped
// key that falls back to its default in silence is found only when the default
// has done its harm. No error repeats what may be a password.
package properties

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	java "github.com/magiconair/properties"
)

// maxFileBytes bounds a file that is a configuration only by mistake.
const maxFileBytes = 1 << 20

// overrideSource names the command line in errors and in the effective
// configuration.
const overrideSource = "--override"

// Error is one thing that is wrong with a configuration.
type Error struct {
	Source  string // the file, or "--override"
	Line    int    // 0 when the source has no lines
	Key     string // empty when the line could not be read at all
	Problem string // what is wrong and what to do
	cause   error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Source)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	return b.String() + ": " + e.Problem
}

// Unwrap gives the cause, such as that of a file that cannot be read; nil when
// the value itself is wrong.
func (e *Error) Unwrap() error { return e.cause }

// place is where a key was set.
type place struct {
	source string
	line   int
	key    string
}

func (p place) errorf(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Source: p.source, Line: p.line, Key: p.key, Problem: err.Error(), cause: errors.Unwrap(err)}
}

func (p place) String() string {
	if p.line > 0 {
		return fmt.Sprintf("%s:%d", p.source, p.line)
	}
	return p.source
}

// assignment is one key=value as it was written.
type assignment struct {
	place
	value string
}

// Load reads the properties file at path (none when path is empty) and lays the
// overrides (key=value) over it. The error is that of a file that cannot be
// opened; what is wrong inside it is in Err, after Check has found the rest.
func Load(path string, overrides []string) (*Settings, error) {
	if path == "" {
		return Parse("", strings.NewReader(""), overrides), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	return Parse(path, f, overrides), nil
}

// Parse is Load from a reader; source names it in errors.
func Parse(source string, r io.Reader, overrides []string) *Settings {
	s := &Settings{source: source, set: map[string]assignment{}}
	if source == "" {
		s.source = "configuration"
	}
	for _, a := range s.file(source, r) {
		if first, twice := s.set[a.key]; twice {
			// Java takes the last one in silence; of two lines a person reads
			// the first.
			s.errs = append(s.errs, a.errorf("already set on line %d; remove one of the two", first.line))
			continue
		}
		s.set[a.key] = a
	}
	for _, o := range overrides {
		key, value, found := strings.Cut(o, "=")
		at := place{source: overrideSource, key: strings.TrimSpace(key)}
		if !found || at.key == "" {
			// The text is not repeated: it may be a password without its key.
			s.errs = append(s.errs, place{source: overrideSource}.errorf("not of the form key=value"))
			continue
		}
		s.set[at.key] = assignment{at, strings.TrimSpace(value)}
	}
	return s
}

// file reads a file of Java properties. The library that knows the escapes does
// not tell line numbers, so it is given one logical line at a time; ${...} is
// left alone, because Kafka does not expand it either and a password may contain
// it.
func (s *Settings) file(source string, r io.Reader) (out []assignment) {
	fail := func(line int, format string, args ...any) {
		s.errs = append(s.errs, place{source: source, line: line}.errorf(format, args...))
	}
	lines := bufio.NewScanner(io.LimitReader(r, maxFileBytes+1))
	lines.Buffer(nil, maxFileBytes+1)
	var (
		logical strings.Builder
		start   int
		size    int
	)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if size += len(text) + 1; size > maxFileBytes {
			fail(n, "the file is larger than %d bytes, which no configuration is", maxFileBytes)
			return nil
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			fail(n, "not text in UTF-8; is this a properties file?")
			return nil
		}
		if logical.Len() == 0 {
			start = n
			if trimmed := strings.TrimLeft(text, " \t\f"); trimmed == "" || trimmed[0] == '#' || trimmed[0] == '!' {
				continue
			}
		}
		logical.WriteString(text + "\n")
		if continues(text) {
			continue
		}
		key, value, err := parseLine(logical.String())
		logical.Reset()
		if err != nil {
			fail(start, "%w", err)
			continue
		}
		out = append(out, assignment{place{source, start, key}, value})
	}
	if err := lines.Err(); err != nil {
		fail(0, "reading: %w", err)
	}
	if logical.Len() > 0 {
		fail(start, "the line ends in a backslash and nothing follows it")
	}
	return out
}

// continues says that an odd number of backslashes ends the line: an even
// number is that many escaped backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

var errNoProperty = errors.New(`not a property: write key=value, and \\ for a backslash`)

func parseLine(logical string) (key, value string, err error) {
	loader := java.Loader{Encoding: java.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(logical))
	if err != nil || p.Len() != 1 {
		return "", "", errNoProperty // the library's own error repeats the text
	}
	key = p.Keys()[0]
	value, _ = p.Get(key)
	return key, strings.TrimSpace(value), nil
}
