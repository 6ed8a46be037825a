package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// hostile is every control character, and every one that changes how its
// neighbours are shown or is not shown itself.
var hostile = func() string {
	var b strings.Builder
	for _, r := range [][2]rune{{0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0001, 0xe0001}} {
		for c := r[0]; c <= r[1]; c++ {
			b.WriteRune(c)
		}
	}
	return b.String() + "\x1b[2J\nfake-id  CompleteCommit  1"
}()

// fill sets every text to the hostile one. Words of a type of their own, and the
// id that is printed of bytes, are this program's.
func fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // the others hold no text
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "UnknownTags" && f.Name != "TopicID" {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(hostile)
		}
	}
}

func filled[T any]() (one T) {
	fill(reflect.ValueOf(&one).Elem())
	return one
}

// looksPlain checks an output of so many lines.
func looksPlain(t *testing.T, what, out string, lines int) {
	t.Helper()
	if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }); i >= 0 {
		t.Errorf("%s prints %q", what, out[i:min(len(out), i+20)])
	}
	if got := strings.Count(out, "\n"); got != lines {
		t.Errorf("%s prints %d lines, want %d:\n%s", what, got, lines, out)
	}
}

func TestNothingThatOthersHaveChosenReachesTheTerminal(t *testing.T) {
	listed, one := filled[wire.ListGlobalTransactionsResponseGlobalTransaction](), filled[wire.DescribeGlobalTransactionsResponseGlobalTransaction]()
	one.DecisionTimestampMillis = -1
	for name, c := range map[string]struct {
		print         func(printer) error
		lines, asJSON int
	}{
		"list":     {func(p printer) error { return p.list(filled[[]wire.ListGlobalTransactionsResponseGlobalTransaction]()) }, 3, 2},
		"list one": {func(p printer) error { return p.list([]wire.ListGlobalTransactionsResponseGlobalTransaction{listed}) }, 2, 1},
		"describe": {func(p printer) error { return p.describe(one) }, 7, 1},
		"resolve":  {func(p printer) error { return p.resolved(hostile, hostile) }, 1, 1},
		"log":      {reportHostile, 1, 2},
		"verify":   {func(p printer) error { return p.verified(one, filled[[]finding]()) }, 5, 2},
		"error": {func(p printer) error {
			complain(p.out, errors.Join(answered(1004, &listed.GlobalTransactionalID), errors.New("second")))
			return nil
		}, 2, 2},
	} {
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			if err := c.print(printer{out: &out, json: asJSON}); err != nil {
				t.Error(err)
			}
			looksPlain(t, name, out.String(), map[bool]int{false: c.lines, true: c.asJSON}[asJSON])
			if first, _, _ := strings.Cut(out.String(), "\n"); asJSON && name == "list one" {
				var back wire.ListGlobalTransactionsResponseGlobalTransaction
				if err := json.Unmarshal([]byte(first), &back); err != nil || !reflect.DeepEqual(back, listed) {
					t.Errorf("JSON is not exact: %+v, %v", back, err)
				}
			}
		}
	}
}

// What the command line is told is repeated, too.
func TestErrorsOfEverySubcommandAreOnALineOfTheirOwn(t *testing.T) {
	oneLine := strings.ReplaceAll(hostile, "\n", "") // of what an operator alone chooses
	for _, args := range [][]string{
		{"list", hostile},
		{"list", "--state", hostile},
		{"list", "--pattern", hostile},
		{"describe", hostile},
		{"abort", hostile},
		{"retry", hostile},
		{"forget", hostile},
		{"give-up", hostile},
		{"give-up", hostile, "--cluster", hostile, "--gone-for-good"},
		{"verify", hostile, "--participant", "us=127.0.0.1:1"},
		{"verify", "x", "--participant", oneLine},
		{"verify", "x", "--participant", "us=" + oneLine},
		{"log", "--take-out", hostile, "--offset", "1"},
		{"log", "--verify", "--dir", hostile},
		{hostile},
		{"--" + oneLine},
		{"list", "--command-config", oneLine},
		{"list", "--bootstrap-server", hostile},
	} {
		_, err := tool(t, append([]string{"--bootstrap-server", "127.0.0.1:1"}, args...)...)
		if err == nil {
			t.Errorf("%q succeeds", args)
			continue
		}
		var out bytes.Buffer
		complain(&out, err)
		if strings.ContainsFunc(strings.ReplaceAll(out.String(), "\n", ""), func(r rune) bool { return !strconv.IsPrint(r) }) || strings.Contains(out.String(), ": fake-id") {
			t.Errorf("%q prints %q", args, out.String())
		}
	}
}
