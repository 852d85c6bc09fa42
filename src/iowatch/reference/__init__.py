"""References: accepted bandwidths, published figures, events and reviews, as files of the checkout."""

from typing import TYPE_CHECKING

from iowatch.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from iowatch.reference.bandwidth import Reference, References
    from iowatch.reference.events import Event, EventKind, parse_scope
    from iowatch.reference.like_cases import PublishedFigure, published_of_like_cases
    from iowatch.reference.policy import AuditRemark, MeasuredSeries, audit_references
    from iowatch.reference.propose import ProposalLevel, ReferenceFileChange, make_proposals, read_reference_text
    from iowatch.reference.published import (
        case_peak_mib_per_s,
        cite_table,
        has_peak,
        peak_mib_per_s,
        percent_of_peak,
        published_counts,
    )
    from iowatch.reference.published_ratios import PublishedRatio, published_ratio
    from iowatch.reference.reviews import Decision, DecisionKind, current_author
    from iowatch.reference.skipped_entries import skipped_entries
else:
    __getattr__ = lazy_names(__name__)
