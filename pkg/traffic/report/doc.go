// Package report draws what package result holds: latency by percentile,
// cumulative distributions, rates beside each other and time lines with their
// events, as SVG and PNG, in a page of HTML that needs nothing else, and in
// Markdown.
//
// Rounds of one measurement are shown as one: rates and percentiles as the
// median of the rounds with their quartiles, distributions as those of all
// samples together.
package report
