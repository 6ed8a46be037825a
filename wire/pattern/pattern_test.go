package pattern

import (
	"context"
	"errors"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func same(s string) string { return s }

func TestAWholeNameHasToMatch(t *testing.T) {
	names := []string{"pay", "pay-1", "repay", "(pay)", "", "p\nay"}
	for expression, want := range map[string][]string{
		"pay": {"pay"}, "pay|pay-1": {"pay", "pay-1"}, "pay.*": {"pay", "pay-1"}, ".*pay": {"pay", "repay"},
		`\Qpay\E`: {"pay"}, "": {""}, "(?i)PAY": {"pay"}, "(?s)p.ay": {"p\nay"}, "p.ay": nil,
	} {
		p, err := Compile(expression)
		if err != nil {
			t.Errorf("%q: %v", expression, err)
			continue
		}
		if got, err := Filter(t.Context(), p, names, same); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q matches %q (%v), want %q", expression, got, err, want)
		}
	}
	if got, err := Filter(t.Context(), nil, names, same); err != nil || !slices.Equal(got, names) {
		t.Errorf("no pattern matches %q, %v", got, err)
	}
}

func TestAnExpressionAboveABoundIsRefusedBeforeItIsCompiled(t *testing.T) {
	for expression, want := range map[string]string{
		strings.Repeat("x", MaxBytes+1):    "1025 bytes; at most 1024",
		"(?:.?){1000}":                     "more than 500 instructions",
		strings.Repeat("(?:.?){1000}", 85): "more than 500 instructions",
		"((x?){30}){30}":                   "more than 500 instructions",
		strings.Repeat("(?:", 100) + "x" + strings.Repeat("){3}", 100): "invalid repeat count",
		"pay(":           "missing closing )",
		"pay)":           "unexpected )",
		"pay)(":          "unexpected )",
		"x{1001}":        "invalid repeat count",
		"\xff":           "invalid UTF-8",
		"secret[\x1b[2J": "missing closing ]",
	} {
		p, err := Compile(expression)
		if err == nil || p != nil {
			t.Errorf("%.40q compiles", expression)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%.40q: the error repeats it: %q", expression, err)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", expression, err, want)
		}
	}
	for _, expression := range []string{strings.Repeat("x", 500), strings.Repeat("ab?", 160), "(?:x?){200}", "(us|eu)-orders-[0-9a-f]{8,32}"} {
		if _, err := Compile(expression); err != nil {
			t.Errorf("%.40q: %v", expression, err)
		}
	}
}

// The count is made before the program is, so it has to be an upper bound.
func TestTheCountIsNoLessThanTheProgram(t *testing.T) {
	atoms := rapid.SampledFrom([]string{"x", "é", ".", `\pL`, "[a-z]", "^", "$", `\b`, "", "(?i:k)", "xyz"})
	var expression func(depth int) *rapid.Generator[string]
	expression = func(depth int) *rapid.Generator[string] {
		if depth == 0 {
			return atoms
		}
		return rapid.Custom(func(t *rapid.T) string {
			sub := func() string { return expression(depth-1).Draw(t, "sub") }
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				return "(" + sub() + ")"
			case 1:
				return "(?:" + sub() + ")" + rapid.SampledFrom([]string{"*", "+", "?", "*?", "{3}", "{2,5}", "{2,}", "{0,4}", "{0}", "{0,}", "{1,}"}).Draw(t, "repeat")
			case 2:
				return sub() + sub()
			case 3:
				return "(?:" + sub() + "|" + sub() + ")"
			}
			return sub()
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := expression(4).Draw(t, "expression")
		re, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			t.Skip(err)
		}
		counted := size(re)
		program, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		// What fails and what matches is around the program.
		if actual := len(program.Inst) - 2; counted <= MaxInstructions && counted < actual {
			t.Errorf("%q: counted %d instructions, compiled to %d", text, counted, actual)
		}
	})
}

func TestMatchingEndsWithTheRequest(t *testing.T) {
	p, err := Compile("x*")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	matched := 0
	_, err = Filter(ctx, p, make([]int, 100), func(int) string {
		if matched++; matched == 3 {
			cancel(gone)
		}
		return ""
	})
	if !errors.Is(err, gone) || matched != 3 {
		t.Errorf("%v after %d names, want the request's end after 3", err, matched)
	}
	turn <- struct{}{} // somebody else matches
	defer func() { <-turn }()
	if _, err = Filter(ctx, p, []int{1}, func(int) string { t.Error("matched out of turn"); return "" }); !errors.Is(err, gone) {
		t.Errorf("%v while another matches", err)
	}
}
