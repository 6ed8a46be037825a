package report

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// diagram is a sequence diagram in pixels, for an SVG.
type diagram struct {
	Width, Height int
	Lanes         []lane
	Arrows        []arrow
	More          int // messages that are left out
}

type lane struct {
	Name string
	X    int
}

// arrow is a message and its answer, or a remark when it goes nowhere.
type arrow struct {
	Note          bool
	X1, X2        int
	Y, AnswerY    int
	Mid           int
	Name, Answer  string
	Full          string // for a tool tip
	At            string
	Times         int
	Failed, Alone bool // Alone: no answer came
}

const (
	laneGap    = 300
	laneMargin = 150
	stepHeight = 58
	maxArrows  = 150
)

// draw lays a trace out. What is said again and again is drawn once.
func draw(trace []Event) diagram {
	var d diagram
	x := map[string]int{}
	for _, name := range order(trace) {
		x[name] = laneMargin + laneGap*len(d.Lanes)
		d.Lanes = append(d.Lanes, lane{Name: name, X: x[name]})
	}
	d.Width = 2*laneMargin + laneGap*max(0, len(d.Lanes)-1)
	y := 76
	var last *Event
	for i := range trace {
		e := &trace[i]
		if last != nil && last.From == e.From && last.To == e.To && last.Name == e.Name && last.Answer == e.Answer && last.Request == e.Request {
			d.Arrows[len(d.Arrows)-1].Times++
			continue
		}
		if len(d.Arrows) == maxArrows {
			d.More = len(trace) - i
			break
		}
		last = e
		a := arrow{Name: e.Name, At: fmt.Sprintf("%.0f ms", e.AtMs), Times: 1, Y: y}
		if e.To == "" {
			a.Note, a.X1, a.X2 = true, laneMargin, d.Width-laneMargin
			a.Mid = d.Width / 2
			y += stepHeight / 2
		} else {
			a.X1, a.X2, a.AnswerY = x[e.From], x[e.To], y+22
			a.Mid = (a.X1 + a.X2) / 2
			a.Answer, a.Alone = cut(e.Answer, 46), e.TookMs < 0
			a.Full = e.Request + "\n= " + e.Answer
			if !a.Alone {
				a.Full += fmt.Sprintf("\n(%.1f ms)", e.TookMs)
			}
			y += stepHeight
		}
		d.Arrows = append(d.Arrows, a)
	}
	d.Height = y
	return d
}

// order puts the coordinator between clients and participants.
func order(trace []Event) []string {
	var clients, rest []string
	add := func(to *[]string, name string) {
		if name != "" && name != "coordinator" && !slices.Contains(*to, name) {
			*to = append(*to, name)
		}
	}
	for i := range trace {
		if e := &trace[i]; e.To != "" && e.From != "coordinator" {
			add(&clients, e.From)
		}
	}
	for i := range trace {
		if e := &trace[i]; !slices.Contains(clients, e.To) {
			add(&rest, e.To)
		}
	}
	return slices.Concat(clients, []string{"coordinator"}, rest)
}

func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
