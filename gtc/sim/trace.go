package sim

import (
	"fmt"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// describe says what a move is about, for people.
func (w *world) describe(m move) string {
	name := moveNames[m.kind]
	switch {
	case m.kind == mvAsk:
		return fmt.Sprintf("client %d asks: %s", m.a, w.question(m.a))
	case m.kind == mvAskLate:
		return fmt.Sprintf("client %d asks, and the request arrives late: %s", m.a, w.question(m.a))
	case m.kind == mvInitialise, m.kind == mvWrite, m.kind == mvWriteMore, m.kind == mvAbortOn, m.kind == mvGiveUpCluster:
		return fmt.Sprintf("client %d: %s %s", m.a, name, clusterIDs[m.b])
	case m.kind <= mvDie:
		return fmt.Sprintf("client %d: %s", m.a, name)
	case m.kind == mvDeliver:
		return fmt.Sprintf("deliver %s", w.bag[m.a].text(m.b))
	case m.kind <= mvCopy:
		return fmt.Sprintf("%s %s", name, w.bag[m.a].text(m.b))
	case m.kind == mvStranger:
		return fmt.Sprintf("host %d: %s", m.a, name)
	case m.kind == mvScan:
		return fmt.Sprintf("host %d: scan of %s", m.a, clusterIDs[m.b])
	case m.kind == mvLook:
		l := w.hosts[m.a].term.looking[m.b/maxClusters]
		return fmt.Sprintf("host %d: looks at %s", m.a, l.effect.Participants[m.b%maxClusters].ClusterID)
	case m.kind == mvResolve:
		return fmt.Sprintf("host %d: operator %s", m.a, [...]string{"aborts", "retries", "forgets"}[m.b])
	case m.kind == mvGoneForGood:
		return fmt.Sprintf("host %d: operator gives %s up", m.a, clusterIDs[m.b])
	case m.kind == mvOutsider:
		return fmt.Sprintf("somebody from outside at %s: %s", clusterIDs[m.a],
			[...]string{"InitProducerId", "EndTxn(abort)", "InitProducerId with the expected epoch", "EndTxn(commit)"}[m.b])
	case m.kind == mvMarkers, m.kind == mvDown, m.kind == mvUp, m.kind == mvKeepCopy, m.kind == mvGoBack,
		m.kind == mvDepose, m.kind == mvLearn:
		if m.kind == mvDepose && m.b == 1 {
			name += ", and looks alone reach it"
		}
		return fmt.Sprintf("%s: %s", clusterIDs[m.a], name)
	}
	return fmt.Sprintf("host %d: %s", m.a, name)
}

func (w *world) question(i int8) string {
	c := &w.clients[i]
	if c.phase == wantsInit {
		return fmt.Sprintf("InitGlobalTxn of instance %d", c.instance)
	}
	x := &w.txns[c.txn]
	return fmt.Sprintf("EndGlobalTxn(%s) of transaction %d (epoch %d, sequence %d, %s)",
		decisionText(!c.wantsOut), c.txn, x.epoch, x.sequence, names(x.listed))
}

func (m *message) text(h int8) string {
	late := ""
	if !m.connected {
		late = ", late"
	}
	switch m.kind {
	case initRequest:
		return fmt.Sprintf("InitGlobalTxn of instance %d to host %d%s", m.instance, h, late)
	case endRequest:
		return fmt.Sprintf("EndGlobalTxn(%s) of transaction %d to host %d%s", decisionText(m.commit), m.txn, h, late)
	case answerToClient:
		return fmt.Sprintf("answer to client %d", m.client)
	case endTxn, endTxnReply, keepTxn, keepTxnReply:
		o := m.order
		s := fmt.Sprintf("%s(%s) %s:%d/%d of host %d%s", kindNames[m.kind], decisionText(o.commit), clusterIDs[o.cluster],
			o.producer.id, o.producer.epoch, m.host, late)
		switch {
		case m.kind == endTxn || m.kind == keepTxn:
		case m.concluded:
			s += ": " + outcomeText(m.answer)
		default:
			s += ": " + m.code.String()
		}
		return s
	case scanResult:
		return fmt.Sprintf("scan of %s to host %d", clusterIDs[m.cluster], m.host)
	case initProducer, initProducerReply, abortTxn, abortTxnReply:
		return fmt.Sprintf("%s of instance %d, %s%s", kindNames[m.kind], m.instance, clusterIDs[m.cluster], late)
	}
	return kindNames[m.kind]
}

func outcomeText(a answer) string {
	s := map[gtc.EndOutcome]string{
		gtc.EndRetry: "again", gtc.EndDone: "done", gtc.EndCommitted: "committed", gtc.EndAborted: "aborted", gtc.EndUnknown: "unknown", gtc.EndUnfenced: "unfenced",
	}[a.outcome]
	if a.uncertain {
		s += ", a copy may be under way"
	}
	return s
}
