// Package pattern compiles regular expressions that clients send, within a bound.
//
// Go's regular expressions take linear time, but linear in the size of the
// compiled program too, and 17 bytes of source make a program of 2,000
// instructions: `(?:.?){1000}`. The program costs memory and time before the
// first name is looked at, so its size is counted before it is compiled.
package pattern

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"
)

const (
	// MaxBytes is the longest expression.
	MaxBytes = 1024
	// MaxInstructions is the largest program that an expression may compile to.
	MaxInstructions = 500
	// patience is how long one request may match names.
	patience = 5 * time.Second
)

// ErrTooSlow says that names could not be matched in time.
var ErrTooSlow = fmt.Errorf("matching the names took longer than %v; make the pattern simpler", patience)

// Pattern matches whole names. A nil one matches every name.
type Pattern struct{ re *regexp.Regexp }

// Compile refuses an expression that is none, or above one of the two bounds.
func Compile(expression string) (*Pattern, error) {
	if len(expression) > MaxBytes {
		return nil, fmt.Errorf("the regular expression has %d bytes; at most %d are allowed", len(expression), MaxBytes)
	}
	turn <- struct{}{}
	defer func() { <-turn }()
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		// Without the expression, which the client knows.
		return nil, fmt.Errorf("the regular expression does not parse: %w", reason(err))
	}
	if size(re) > MaxInstructions {
		return nil, fmt.Errorf("the regular expression compiles to more than %d instructions; use fewer repetitions of a number", MaxInstructions)
	}
	compiled, err := regexp.Compile(`^(?:` + expression + `)$`)
	if err != nil { // too high, with what is around it
		return nil, fmt.Errorf("the regular expression does not compile: %w", reason(err))
	}
	return &Pattern{compiled}, nil
}

// reason is a syntax error without the part of the expression that it is about.
func reason(err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return errors.New(e.Code.String())
	}
	return err
}

// size is at least the number of instructions of the compiled program, but for
// those around it, and says no more than that it is above MaxInstructions.
func size(re *syntax.Regexp) int {
	n := 1
	switch re.Op { //nolint:exhaustive // the others are one instruction
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpPlus, syntax.OpQuest:
		n += size(re.Sub[0])
	case syntax.OpCapture, syntax.OpStar:
		n += 1 + size(re.Sub[0]) // (x*)* becomes ((x*)+)?
	case syntax.OpConcat, syntax.OpAlternate:
		n = max(len(re.Sub)-1, 1) // what branches
		if re.Op == syntax.OpConcat {
			n = 0
		}
		for _, sub := range re.Sub {
			if n += size(sub); n > MaxInstructions {
				break
			}
		}
	case syntax.OpRepeat:
		// x{2,5} becomes xx(x(x(x)?)?)?, x{2,} xx+, and x{0,} x*.
		n += 1 + max(re.Min, re.Max, 1)*size(re.Sub[0]) + max(re.Max-re.Min, 0)
	}
	return min(n, MaxInstructions+1)
}

// turn is taken for each expression and each name: however many clients ask,
// that takes one core, and others have the rest.
var turn = make(chan struct{}, 1)

// Filter keeps the items whose names match. It is for a goroutine of the
// request's own. The error is ctx's, or ErrTooSlow.
func Filter[T any](ctx context.Context, p *Pattern, items []T, name func(T) string) ([]T, error) {
	if p == nil {
		return items, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrTooSlow)
	defer cancel()
	var kept []T
	for _, item := range items {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		matches := p.re.MatchString(name(item))
		<-turn
		if matches {
			kept = append(kept, item)
		}
	}
	return kept, nil
}
